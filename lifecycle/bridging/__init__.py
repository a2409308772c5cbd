"""What stands behind `bridge.py`: the way in for gateways that own their delivery."""
