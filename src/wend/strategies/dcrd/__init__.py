"""Delay-Cognizant Reliable Delivery, as printed."""
