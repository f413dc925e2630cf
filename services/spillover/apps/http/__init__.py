"""What the services have in common over HTTP: pages, the rules for other sites' pages, HEAD."""
