"""Each state's work: `work(job, services) -> Done | Wait`, or StepFailed; steps do not know each other."""
