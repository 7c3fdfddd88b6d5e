"""What fsck reads and repairs."""
