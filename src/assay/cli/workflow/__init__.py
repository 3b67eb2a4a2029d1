"""`assay workflow`: plans and tasks of workflows, for who plans, who sets tasks, and who validates."""
