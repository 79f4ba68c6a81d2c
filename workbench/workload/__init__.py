"""What the load generator offers: arrival processes, request classes, tenants. All from seeds, none from a clock."""
