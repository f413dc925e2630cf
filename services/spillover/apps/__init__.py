"""Services: FastAPI factories. Routes translate, they never decide."""
