"""The kernels that ran -> the nodes of the file that they compute, and the groups of those."""
