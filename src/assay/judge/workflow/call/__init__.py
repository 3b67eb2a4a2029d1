"""How a service is asked, whichever kind it is: a request out, the bytes of an answer back, or one of three ways to fail."""
