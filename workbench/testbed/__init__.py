"""The live testbed: a real streaming speech pipeline that needs only torch, numpy, pyarrow and the standard library."""
