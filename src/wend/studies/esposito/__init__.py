"""The esposito paper: clusters with several coordinators under crashes."""
