"""What both suites stand on: small models in several forms, surgery on their files, and the judgement."""
