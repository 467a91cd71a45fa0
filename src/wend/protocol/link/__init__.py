"""The link layer: links to neighbours, and the transmission of messages over them."""
