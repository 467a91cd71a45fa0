"""The dmm paper: content-based matching on a DHT."""
