// Azurite asks for its parts when it starts, and uses none of them here.
