"""Many more architectures than in the matrix, in users' exports and rewrites; no rule was written for the held ones."""
