"""services act"""
