"""JSONLogic and flagd's operators, compiled once per flag set. Pure: `now` is an argument."""
