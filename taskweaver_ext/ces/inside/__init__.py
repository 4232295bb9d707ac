"""What runs elsewhere: in every kernel (`kernel`), and beside one in a container (`spawner`).

This folder is sent away as source and loaded there under the name
`taskweaver_inside`, whatever Python (3.9 or newer) and image there is.
It therefore imports the standard library, IPython, ipykernel and what they
stand on, and its modules import each other relatively.
"""
