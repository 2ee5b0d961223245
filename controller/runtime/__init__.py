"""The reconcile loop of all kinds, and what it needs: cache, tenancy, processes, texts of users."""
