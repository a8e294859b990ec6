"""What users need to test their own workers and planners; and the simulator that tests ours."""
