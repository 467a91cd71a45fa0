"""Interest plug-ins: who wants this event?"""
