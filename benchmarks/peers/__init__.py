"""What Millstream is measured beside, each peer in a folder and an environment of its own."""
