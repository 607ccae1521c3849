"""Lower bounds: proposals of certificates, each verified by ``orsched.certificates``."""
