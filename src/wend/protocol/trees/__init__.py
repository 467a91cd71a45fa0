"""k spanning trees of the overlay, built by the peers among themselves: by extended GHS, or as shortest-path trees."""
