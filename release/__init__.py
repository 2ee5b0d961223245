"""Makes the files of a release: wheel, source distribution, the images' context, charts, SBOMs, notes and
checksums.
"""
