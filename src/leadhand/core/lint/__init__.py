"""What is wrong or unwise with a plan, before it runs."""
