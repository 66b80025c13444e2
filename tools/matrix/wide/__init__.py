"""Many more architectures than the matrix has, as users export, rewrite and keep them; nothing was tuned to them."""
