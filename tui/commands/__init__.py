"""The slash commands: their table, what their words can become, and what they ask of a front end."""
