"""One module a network: from the files its makers published to a state_dict."""
