"""Who may do what: users, sessions, OxRBAC, the catalog and its views, the store, the audit trail."""
