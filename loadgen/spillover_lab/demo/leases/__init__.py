"""The demo of leases: `show` is the script, which can be copied from; `ownership` reckons who
served which stream when, `page` shows it, `command` has the options.
"""
