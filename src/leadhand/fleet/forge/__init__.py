"""Code hosts: the port, its clients (GitHub, GitLab, plain git), and webhooks."""
