"""What runs inside a kernel: immediate output, the plugin API, one round trip per execution.

This folder is sent to kernels as source and loaded there under the name
`taskweaver_kernel`, whatever Python (3.9 or newer) and image the kernel has.
It therefore imports the standard library, IPython, ipykernel and what they
stand on, and its modules import each other relatively.
"""
