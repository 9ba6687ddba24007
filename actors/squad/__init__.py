"""Teams of agents: their stored resources, and the engine that plans a request and runs the plan in waves."""
