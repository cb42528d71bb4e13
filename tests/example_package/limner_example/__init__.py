"""One loss, one encoder, one reader and one recipe for limner."""
