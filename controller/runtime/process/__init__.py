"""What a process of the controller needs: leadership, helper processes, metrics, temporary folders."""
