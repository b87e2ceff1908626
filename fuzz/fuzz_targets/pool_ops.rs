#![no_main]

epoll_group_fuzz::fuzz!(pool_ops);
