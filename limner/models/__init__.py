"""The networks: image encoders, text encoders, and the systems built of them."""
