"""The quist thesis: underlay-aware overlays, and k trees over them."""
