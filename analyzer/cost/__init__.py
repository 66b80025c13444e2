"""Model -> how much work its nodes do, as polynomials in the axes of its inputs."""
