"""Records of trainings: metrics, and statistics of each array, once per epoch.

Trainings make them, trackers pass them on, and reports draw them. The form of a file of records is
described in `pulsora.records.files`.
"""
