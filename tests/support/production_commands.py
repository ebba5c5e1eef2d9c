"""The commands of docs/operators/production.md that need containers, a cluster or a machine of their own.

The drill of containers executes the first; the others are named with the test that reads what they start.
"""

BY_THE_DRILL = (
    "docker compose up --build --wait",
    "docker compose exec worker arkline doctor",
    "docker compose exec web arkline token create me --role admin",
    "docker compose --profile monitoring up --build --wait",
)

ELSEWHERE = {
    "helm install ": "test_deployment",
    "kubectl ": "test_deployment",
    "sudo ARKLINE_SECRETS=": "test_systemd",
    "arkline doctor": "test_doctor",
}
"""The beginning of a command -> the module with the test of it."""
