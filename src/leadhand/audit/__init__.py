"""Evidence: hash chains over the log, anchors, signatures and bundles for independent checks."""
