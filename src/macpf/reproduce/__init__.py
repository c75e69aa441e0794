"""The paper's figures and tables, by name: each is one command, with the paper's numbers beside ours."""
