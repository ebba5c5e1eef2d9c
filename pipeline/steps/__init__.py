"""The states' work: `work(job, context) -> Done | Wait`, or StepFailed; steps do not know each other."""
