"""What an agent can do: tools, toolsets, and the policy that decides which calls run unasked."""
