"""Graph plug-ins: who is linked to whom?"""
