"""Two source routes for each subscriber."""
