"""services run"""
