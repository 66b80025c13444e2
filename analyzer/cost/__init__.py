"""Model -> the work of its nodes, as polynomials in the axes of its inputs."""
