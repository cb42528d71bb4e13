"""The networks: image paths, text paths, and the systems built of them."""
